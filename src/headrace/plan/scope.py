"""Which column a name in a query means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.plan.expressions import col


class Unplannable(Exception):  # noqa: N818  (no error of the user's: the query is then kept as text)
    """The builder has no operators for this query, for the reason given."""


@dataclass
class Names:
    """Column names that are unique in one plan."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wish: str) -> str:
        """The wished name, with a number if it is taken.

        >>> names = Names()
        >>> names.fresh("id"), names.fresh("ID")
        ('id', 'ID_2')
        """
        name, count = wish, 1
        while name.lower() in self.taken:
            count += 1
            name = f"{wish}_{count}"
        self.taken.add(name.lower())
        return name


Visible = tuple[str, str]
"""A column's name for the user, and its name in the plan."""


@dataclass(frozen=True)
class Relation:
    """One item of a FROM clause: its alias, or the parts of its table's name, and its columns."""

    name: tuple[str, ...]
    columns: tuple[Visible, ...]

    def answers_to(self, qualifier: Sequence[str]) -> bool:
        return self.name[-len(qualifier) :] == tuple(part.lower() for part in qualifier)

    def find(self, name: str) -> list[str]:
        return [column for user, column in self.columns if user.lower() == name.lower()]


@dataclass(frozen=True)
class Scope:
    """What names mean at one place; `visible` is what `*` gives, after USING has merged columns."""

    relations: tuple[Relation, ...] = ()
    visible: tuple[Visible, ...] = ()
    parent: Scope | None = None

    def resolve(self, parts: Sequence[str], aliases: Mapping[str, exp.Expr] | None = None) -> exp.Expr:
        """The column that a dotted name means; what is left of the name are fields of a struct.

        Names of the FROM clause come first, then aliases of the same SELECT, then the outer query.
        """
        if (found := self._own(parts)) is not None:
            return found
        if aliases and (alias := aliases.get(parts[0].lower())) is not None:
            return _fields(exp.Paren(this=alias.copy()), parts[1:])
        if self.parent is not None:
            return self.parent.resolve(parts)
        raise Unplannable(f"the column {'.'.join(parts)} was not found")

    def _own(self, parts: Sequence[str]) -> exp.Expr | None:
        for length in range(min(3, len(parts) - 1), 0, -1):
            qualifier, name, rest = parts[:length], parts[length], parts[length + 1 :]
            matches = [r for r in self.relations if r.answers_to(qualifier)]
            columns = [column for relation in matches for column in relation.find(name)]
            if columns:
                return _fields(_only(columns, parts), rest)
        columns = [column for user, column in self.visible if user.lower() == parts[0].lower()]
        return _fields(_only(columns, parts), parts[1:]) if columns else None

    def star(self, qualifier: Sequence[str] = ()) -> tuple[Visible, ...]:
        """The columns of `*` or `table.*`."""
        if not qualifier:
            return self.visible
        matches = [relation for relation in self.relations if relation.answers_to(qualifier)]
        if len(matches) != 1:
            raise Unplannable(f"{'.'.join(qualifier)}.* is not one table")
        own = matches[0].columns
        hidden = [column for column in own if column not in self.visible]
        # Behind USING, Spark gives those first that `*` does not show, and the others as `*` has them.
        if len(hidden) > 1 or [*hidden, *(one for one in self.visible if one in own)] != list(own):
            raise Unplannable(f"{'.'.join(qualifier)}.* behind USING or NATURAL JOIN")
        return own


def _only(columns: Sequence[str], parts: Sequence[str]) -> exp.Expr:
    if len(columns) > 1:
        raise Unplannable(f"the column {'.'.join(parts)} is ambiguous")
    return col(columns[0])


def _fields(base: exp.Expr, rest: Sequence[str]) -> exp.Expr:
    for field_name in rest:
        base = exp.Dot(this=base, expression=exp.Identifier(this=field_name, quoted=True))
    return base
