"""Random queries over random schemas: every construct of the engine, mixed and nested."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Schema = dict[str, list[tuple[str, str]]]
INT, STR = "INTEGER", "VARCHAR"
NATURAL = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


@dataclass(frozen=True)
class Col:
    """A column as the query writes it, and its type."""

    sql: str
    type: str

    @property
    def name(self) -> str:
        return self.sql.split(".")[-1]


@dataclass(frozen=True)
class Query:
    """A query's text and the columns it gives."""

    sql: str
    columns: tuple[Col, ...]


def random_schema(random: Random) -> Schema:
    """Two to four tables with a key-like column each, ints and strings."""
    schema: Schema = {}
    for table in ("t", "u", "v", "w")[: random.randint(2, 4)]:
        columns = [("k", INT)]
        for name in ("a", "b", "s", "c", "id"):
            if random.random() < 0.5:
                columns.append((name, STR if name == "s" else INT))
        if len(columns) == 1:
            columns.append(("a", INT))
        schema[table] = columns
    return schema


def random_row(random: Random, columns: Sequence[tuple[str, str]]) -> tuple[Any, ...]:
    def value(type_: str) -> Any:
        if random.random() < 0.2:
            return None
        return random.choice(("x", "xy", "z")) if type_ == STR else random.randint(0, 2)

    return tuple(value(type_) for _, type_ in columns)


# Window functions that give equal rows different values.
TELLS_EQUALS_APART = ("ROWS BETWEEN 1", "1 FOLLOWING)", "ROW_NUMBER", "NTILE", "LAG", "LEAD")


@dataclass
class Generator:
    """Writes queries; `ambiguous` is set when the text leaves ties open, so engines may differ."""

    random: Random
    schema: Schema
    views: dict[str, tuple[Col, ...]] = field(default_factory=dict)
    ambiguous: bool = False
    ctes: dict[str, tuple[Col, ...]] = field(default_factory=dict)
    counter: int = 0

    def fresh(self, label: str) -> str:
        self.counter += 1
        return f"{label}{self.counter}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # Queries

    def query(self, depth: int, outer: Sequence[Col] = ()) -> Query:
        """A query with uniquely named output columns."""
        if depth > 0 and self.chance(0.12):
            return self.set_operation(depth, outer)
        if depth > 0 and self.chance(0.1):
            return self.with_cte(depth)
        if depth > 0 and self.chance(0.1):
            return self.limited(depth, outer)
        return self.select(depth, outer)

    def set_operation(self, depth: int, outer: Sequence[Col]) -> Query:
        left = self.select(depth - 1, outer)
        right = self.conforming(depth - 1, left.columns, outer)
        words = ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
        return Query(f"({left.sql}) {self.random.choice(words)} ({right.sql})", left.columns)

    def conforming(self, depth: int, columns: Sequence[Col], outer: Sequence[Col]) -> Query:
        """A query with columns of the given types."""
        source = self.select(depth, outer)
        alias = self.fresh("q")
        pool = [Col(f"{alias}.{column.name}", column.type) for column in source.columns]
        items = [f"{self.expression(pool, c.type, 1)} AS {c.name}" for c in columns]
        return Query(f"SELECT {', '.join(items)} FROM ({source.sql}) {alias}", tuple(columns))

    def with_cte(self, depth: int) -> Query:
        name = self.random.choice([self.fresh("cte"), *self.schema])
        body = self.query(depth - 1)
        before = dict(self.ctes)
        self.ctes[name] = body.columns
        main = self.query(depth - 1)
        self.ctes = before
        return Query(f"WITH {name} AS ({body.sql}) {main.sql}", main.columns)

    def limited(self, depth: int, outer: Sequence[Col]) -> Query:
        inner = self.select(depth - 1, outer)
        columns = list(inner.columns)
        self.random.shuffle(columns)
        if self.chance(0.3):
            columns = columns[:1]
            self.ambiguous = True
        order = ", ".join(c.name + self.random.choice(["", " DESC", " NULLS LAST"]) for c in columns)
        offset = f" OFFSET {self.random.randint(0, 2)}" if self.chance(0.3) else ""
        alias = self.fresh("q")
        listed = ", ".join(column.name for column in inner.columns)
        limit = f"LIMIT {self.random.randint(0, 4)}{offset}"
        sql = f"SELECT {listed} FROM ({inner.sql}) {alias} ORDER BY {order} {limit}"
        return Query(sql, inner.columns)

    def select(self, depth: int, outer: Sequence[Col] = ()) -> Query:
        source, pool = self.source(depth)
        where = ""
        if self.chance(0.35) or outer:
            parts = [self.condition(pool, depth, outer=outer) for _ in range(self.random.choice([1, 1, 2]))]
            if outer and self.chance(0.8):
                parts.append(self.correlation(pool, outer))
            where = " WHERE " + self.random.choice([" AND ", " OR "]).join(parts)
        if self.chance(0.35):
            return self.grouped(depth, f"{source}{where}", pool)
        if self.chance(0.2):
            return self.windowed(f"{source}{where}", pool)
        items, columns = self.items(pool, depth, self.random.randint(1, 3), outer)
        word = "SELECT DISTINCT" if self.chance(0.15) else "SELECT"
        return Query(f"{word} {', '.join(items)} FROM {source}{where}", columns)

    def items(
        self, pool: Sequence[Col], depth: int, count: int, outer: Sequence[Col] = ()
    ) -> tuple[list[str], tuple[Col, ...]]:
        items, columns = [], []
        for _ in range(count):
            type_ = self.random.choice([INT, INT, STR])
            name = self.fresh("x")
            if depth > 0 and self.chance(0.15):
                expression, type_ = self.scalar_subquery(pool, depth - 1), INT
            elif depth > 0 and self.chance(0.1):
                test = self.condition(pool, depth, outer=outer)
                expression = f"CASE WHEN {test} THEN {self.expression(pool, type_, 1)} END"
                if self.chance(0.3):
                    expression, type_ = f"CAST(({test}) AS INT)", INT
                    # Where it is unknown whether a subquery has a value, Spark says that it has not.
                    self.ambiguous |= bool(re.search(r"\bIN \((SELECT|WITH|\()", test))
            else:
                expression = self.expression(pool, type_, 2)
            items.append(f"{expression} AS {name}")
            columns.append(Col(name, type_))
        return items, tuple(columns)

    # FROM

    def relation(self, depth: int) -> tuple[str, list[Col]]:
        """A table, a CTE or a subquery, with an alias."""
        alias = self.fresh("r")
        if depth > 0 and self.chance(0.35):
            inner = self.query(depth - 1)
            return f"({inner.sql}) {alias}", [Col(f"{alias}.{c.name}", c.type) for c in inner.columns]
        if self.ctes and self.chance(0.5):
            name = self.random.choice(list(self.ctes))
            return f"{name} {alias}", [Col(f"{alias}.{c.name}", c.type) for c in self.ctes[name]]
        if self.chance(0.05):
            return f"(VALUES (1, 'x'), (2, NULL), (NULL, 'z')) AS {alias}(k, s)", [
                Col(f"{alias}.k", INT),
                Col(f"{alias}.s", STR),
            ]
        if self.views and self.chance(0.3):
            name = self.random.choice(list(self.views))
            return f"{name} {alias}", [Col(f"{alias}.{c.name}", c.type) for c in self.views[name]]
        if depth > 0 and self.chance(0.06):
            return self.pivot(depth - 1, alias)
        table = self.random.choice([name for name in self.schema if name not in self.ctes] or ["t"])
        if table in self.ctes:
            return f"{table} {alias}", [Col(f"{alias}.{c.name}", c.type) for c in self.ctes[table]]
        return f"{table} {alias}", [Col(f"{alias}.{name}", type_) for name, type_ in self.schema[table]]

    def pivot(self, depth: int, alias: str) -> tuple[str, list[Col]]:
        """Groups of one query turned into columns."""
        inner = self.conforming(depth, [Col("g", INT), Col("h", STR), Col("m", INT)], ())
        names = [self.fresh("p") for _ in range(2)]
        listed = f"'x' AS {names[0]}, 'xy' AS {names[1]}"
        word = self.random.choice(["SUM", "COUNT", "MAX"])
        # Where a group lacks a value Spark counts NULL, DuckDB 0.
        self.ambiguous |= word == "COUNT"
        # A PIVOT takes all that stands to its left in FROM, so that it is closed in where it is joined.
        sql = f"(SELECT * FROM ({inner.sql}) PIVOT ({word}(m) FOR h IN ({listed}))) {alias}"
        return sql, [Col(f"{alias}.{name}", INT) for name in ("g", *names)]

    def pivoted_join(self, sql: str, pool: list[Col], depth: int) -> tuple[str, list[Col]]:
        """One relation beside a query, and the pairs turned into columns."""
        inner = self.conforming(depth, [Col("h", STR), Col("m", INT)], ())
        names, alias = [self.fresh("p") for _ in range(2)], self.fresh("r")
        listed = f"'x' AS {names[0]}, 'z' AS {names[1]}"
        joined = f"{sql} CROSS JOIN ({inner.sql}) {self.fresh('q')}"
        columns = [Col(f"{alias}.{column.name}", column.type) for column in pool]
        columns += [Col(f"{alias}.{name}", INT) for name in names]
        return f"{joined} PIVOT (MAX(m) FOR h IN ({listed})) AS {alias}", columns

    def source(self, depth: int) -> tuple[str, list[Col]]:
        sql, pool = self.relation(depth)
        if depth > 0 and not {"h", "m"} & {column.name for column in pool} and self.chance(0.02):
            sql, pool = self.pivoted_join(sql, pool, depth - 1)
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            sql, pool = self.join(sql, pool, depth)
        if self.chance(0.04):
            sql, pool = self.inline(sql, pool)
        if self.chance(0.06) and any(column.type == STR for column in pool):
            text = self.random.choice([column for column in pool if column.type == STR])
            view, piece = self.fresh("e"), self.fresh("piece")
            word = self.random.choice(["", "OUTER "])
            place = self.fresh("place") if self.chance(0.4) else ""
            call = f"{'posexplode' if place else 'explode'}(split({text.sql}, 'y'))"
            sql = f"{sql} LATERAL VIEW {word}{call} {view} AS {f'{place}, ' if place else ''}{piece}"
            pool = [*pool, Col(f"{view}.{piece}", STR)]
            pool += [Col(f"{view}.{place}", INT)] if place else []
        return sql, pool

    def inline(self, sql: str, pool: list[Col]) -> tuple[str, list[Col]]:
        """An array of structs as rows; a NULL has none."""
        view, number, text = self.fresh("i"), self.fresh("number"), self.fresh("text")
        struct = f"named_struct('p', {self.expression(pool, INT, 0)}, 'q', e)"
        array = f"transform(split({self.expression(pool, STR, 0)}, 'y'), e -> {struct})"
        word = self.random.choice(["", "OUTER "])
        added = [Col(f"{view}.{number}", INT), Col(f"{view}.{text}", STR)]
        return f"{sql} LATERAL VIEW {word}inline({array}) {view} AS {number}, {text}", [*pool, *added]

    def join(self, sql: str, pool: list[Col], depth: int) -> tuple[str, list[Col]]:
        if depth > 0 and self.chance(0.12):
            inner = self.query(depth - 1, outer=pool)
            alias = self.fresh("l")
            word = self.random.choice(["JOIN LATERAL", "LEFT JOIN LATERAL"])
            columns = [Col(f"{alias}.{c.name}", c.type) for c in inner.columns]
            return f"{sql} {word} ({inner.sql}) {alias} ON TRUE", pool + columns
        other, columns = self.relation(depth)
        # A merged column has no owner: beside another of its name, nobody can tell which is meant.
        taken = {column.name for column in columns}
        clear = [column for column in pool if "." in column.sql or column.name not in taken]
        if not clear:
            return sql, pool
        pool = clear
        both = pool + columns
        kind = self.random.choice(
            [
                "JOIN",
                "JOIN",
                "LEFT JOIN",
                "RIGHT JOIN",
                "FULL JOIN",
                "LEFT SEMI JOIN",
                "LEFT ANTI JOIN",
                "CROSS JOIN",
            ]
        )
        if kind == "CROSS JOIN":
            return f"{sql}{self.random.choice([' CROSS JOIN ', ', '])}{other}", both
        shared = {c.name for c in pool} & {c.name for c in columns}
        first = " JOIN " not in sql and ", " not in sql
        rest = [c for c in both if c.name not in shared]
        if rest and first and kind in NATURAL and self._agree(pool, columns, shared) and self.chance(0.2):
            return f"{sql} NATURAL {kind} {other}", rest
        if first and shared and self.chance(0.2):
            name = self.random.choice(sorted(shared))
            kept = pool if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else both
            # The merged column has no owner in a full join, so nobody asks for it by name.
            rest = [c for c in kept if c.name != name] or [Col(name, dict(self._types(both))[name])]
            return f"{sql} {kind} {other} USING ({name})", rest
        on = [self.link(pool, columns)]
        if self.chance(0.25):
            # DuckDB knows no subquery in the condition of an outer join.
            on.append(self.condition(both, depth if kind == "JOIN" else 0))
        if self.chance(0.1):
            on = [self.comparison(both)]
        kept = pool if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else both
        return f"{sql} {kind} {other} ON {' AND '.join(on)}", kept

    def _agree(self, left: Sequence[Col], right: Sequence[Col], names: set[str]) -> bool:
        """Whether there are columns of one name, each once on both sides and of one type."""
        mine = [pair for pair in self._types(left) if pair[0] in names]
        theirs = [pair for pair in self._types(right) if pair[0] in names]
        return bool(names) and len(mine) == len(names) and sorted(mine) == sorted(theirs)

    def _types(self, pool: Sequence[Col]) -> list[tuple[str, str]]:
        return [(column.name, column.type) for column in pool]

    def link(self, left: Sequence[Col], right: Sequence[Col]) -> str:
        mine = self.random.choice(left)
        theirs = [column for column in right if column.type == mine.type]
        if not theirs:
            return self.comparison([*left, *right])
        word = self.random.choice(["=", "=", "=", "<=>", "<"])
        return f"{mine.sql} {word} {self.random.choice(theirs).sql}"

    # Groups and windows

    def grouped(self, depth: int, source: str, pool: Sequence[Col]) -> Query:
        keys = self.random.sample(list(pool), min(len(pool), self.random.randint(0, 2)))
        items, columns = [], []
        if self.chance(0.15):
            keys = [Col(self.expression(pool, key.type, 1), key.type) for key in keys]
            keys = [key for key in keys if not key.sql[0].isdigit() and key.sql[0] != "'"]
        for key in keys:
            name = self.fresh("g")
            items.append(f"{key.sql} AS {name}")
            columns.append(Col(name, key.type))
        for _ in range(self.random.randint(0 if keys else 1, 2)):
            name = self.fresh("n")
            items.append(f"{self.aggregate(pool)} AS {name}")
            columns.append(Col(name, INT))
        if keys and self.chance(0.15):
            name = self.fresh("n")
            word = self.random.choice(["PARTITION BY", "ORDER BY"])
            over = f"SUM({self.aggregate(pool)}) OVER ({word} {self.random.choice(keys).sql})"
            items.append(f"{over} AS {name}")
            columns.append(Col(name, INT))
        group = f" GROUP BY {', '.join(key.sql for key in keys)}" if keys else ""
        if keys and self.chance(0.15):
            group = f" GROUP BY {', '.join(str(place + 1) for place in range(len(keys)))}"
        if len(keys) == 2 and self.chance(0.25):
            a, b = (key.sql for key in keys)
            choices = [f"GROUPING SETS (({a}, {b}), ({a}))", f"GROUPING SETS (({a}), ({b}))"]
            choices += [f"ROLLUP ({a}, {b})", f"CUBE ({a}, {b})"]
            chosen = self.random.choice(choices)
            # Over no rows Spark gives no total, DuckDB one.
            self.ambiguous |= chosen.startswith(("ROLLUP", "CUBE"))
            group = f" GROUP BY {chosen}"
            items.append(f"GROUPING({a}) AS {self.fresh('n')}")
            columns.append(Col(items[-1].split()[-1], INT))
        having = ""
        if self.chance(0.25):
            having = f" HAVING {self.aggregate(pool)} {self.random.choice(['>', '=', '<'])} 1"
            if depth > 0 and self.chance(0.3):
                having += f" OR {self.aggregate(pool)} IN ({self.column_query(depth - 1, INT).sql})"
        return Query(f"SELECT {', '.join(items)} FROM {source}{group}{having}", tuple(columns))

    def aggregate(self, pool: Sequence[Col]) -> str:
        ints = [column.sql for column in pool if column.type == INT]
        if not ints or self.chance(0.25):
            return "COUNT(*)"
        value = self.random.choice(ints)
        name = self.random.choice(
            ["SUM", "MIN", "MAX", "COUNT", "AVG", "COUNT_IF", "COUNT DISTINCT", "SUM DISTINCT", "OTHER"]
        )
        if name == "OTHER":
            return self.other_aggregate(value, self.random.choice(ints))
        if name == "COUNT_IF":
            return f"COUNT_IF({value} > 1)"
        if name == "AVG":
            return f"CAST(AVG({value}) * 12 AS INT)"
        if " " in name:
            return f"{name.split()[0]}(DISTINCT {value})"
        call = f"{name}({value})"
        return f"{call} FILTER (WHERE {self.comparison(pool)})" if self.chance(0.15) else call

    def other_aggregate(self, value: str, other: str) -> str:
        """Aggregates whose results are numbers in a roundabout way; 0.1 keeps clear of halves."""
        return self.random.choice(
            [
                f"BIT_OR({value})",
                f"BIT_XOR({value})",
                f"CAST(BOOL_AND({value} > 0) AS INT)",
                f"CAST(BOOL_OR({value} > 1) AS INT)",
                f"SIZE(COLLECT_SET({value}))",
                f"SIZE(COLLECT_LIST({value}))",
                f"CAST(MEDIAN({value}) * 2 AS INT)",
                f"CAST(ROUND(VAR_POP({value}) * 1000 + 0.1) AS INT)",
                f"CAST(ROUND(STDDEV_POP({value}) * 1000 + 0.1) AS INT)",
                f"CAST(ROUND(COVAR_POP({value}, {other}) * 1000 + 0.1) AS INT)",
            ]
        )

    def windowed(self, source: str, pool: Sequence[Col]) -> Query:
        items, columns = self.items(pool, 0, 1)
        windows = []
        for _ in range(self.random.randint(1, 2)):
            name = self.fresh("o")
            expression = self.window(pool)
            windows.append(expression)
            if self.chance(0.2):
                expression = f"{expression} + 1"
            items.append(f"{expression} AS {name}")
            columns = (*columns, Col(name, INT))
        qualify = ""
        if self.chance(0.2):
            windows.append(self.window(pool))
            qualify = f" QUALIFY {windows[-1]} = 1"
        # Of equal rows, each of these may call another one the first.
        self.ambiguous |= sum(any(part in one for part in TELLS_EQUALS_APART) for one in windows) > 1
        return Query(f"SELECT {', '.join(items)} FROM {source}{qualify}", columns)

    def window(self, pool: Sequence[Col]) -> str:
        partition = self.random.sample(list(pool), min(len(pool), self.random.choice([0, 1, 1, 2])))
        by = f"PARTITION BY {', '.join(column.sql for column in partition)}" if partition else ""
        every = list(pool)
        self.random.shuffle(every)
        ints = [column.sql for column in pool if column.type == INT] or ["1"]
        value = self.random.choice(ints)
        kind = self.random.choice(
            ["rank", "sum", "running", "rows", "place", "offset", "first", "last", "range", "share"]
        )
        total = ", ".join(c.sql + self.random.choice(["", " DESC"]) for c in every)
        if kind in ("rows", "place", "offset", "first", "last") and self.chance(0.3):
            self.ambiguous = True
            total = every[0].sql
        match kind:
            case "rank":
                return f"{self.random.choice(['RANK', 'DENSE_RANK'])}() OVER ({by} ORDER BY {every[0].sql})"
            case "sum":
                return f"{self.random.choice(['SUM', 'MAX', 'COUNT'])}({value}) OVER ({by})"
            case "running":
                return f"SUM({value}) OVER ({by} ORDER BY {every[0].sql})"
            case "rows":
                frame = self.random.choice(
                    ["1 PRECEDING AND CURRENT ROW", "UNBOUNDED PRECEDING AND 1 FOLLOWING"]
                )
                return f"SUM({value}) OVER ({by} ORDER BY {total} ROWS BETWEEN {frame})"
            case "place":
                return f"{self.random.choice(['ROW_NUMBER()', 'NTILE(2)'])} OVER ({by} ORDER BY {total})"
            case "offset":
                return f"{self.random.choice(['LAG', 'LEAD'])}({value}) OVER ({by} ORDER BY {total})"
            case "last":
                frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
                call = self.random.choice([f"LAST_VALUE({value})", f"NTH_VALUE({value}, 2)"])
                return f"{call} OVER ({by} ORDER BY {total} {frame})"
            case "range":
                frame = self.random.choice(["1 PRECEDING AND CURRENT ROW", "CURRENT ROW AND 1 FOLLOWING"])
                return f"SUM({value}) OVER ({by} ORDER BY {value} RANGE BETWEEN {frame})"
            case "share":
                call = self.random.choice(["PERCENT_RANK", "CUME_DIST"])
                return f"CAST({call}() OVER ({by} ORDER BY {every[0].sql}) * 1000 + 0.1 AS INT)"
        return f"FIRST_VALUE({value}) OVER ({by} ORDER BY {total})"

    # Expressions

    def expression(self, pool: Sequence[Col], type_: str, depth: int) -> str:
        fitting = [column.sql for column in pool if column.type == type_]
        if not fitting or self.chance(0.08):
            return self.random.choice(["'x'", "''"]) if type_ == STR else str(self.random.randint(0, 3))
        column = self.random.choice(fitting)
        if depth == 0 or self.chance(0.55):
            return column
        other = self.expression(pool, type_, depth - 1)
        if type_ == STR:
            return self.random.choice(
                [
                    f"COALESCE({column}, {other})",
                    f"({column} || {other})",
                    f"UPPER({column})",
                    f"split({column}, 'y')[0]",
                    f"named_struct('p', {column}, 'q', {other}).q",
                    f"transform(split({column}, 'y'), e -> e || {other})[0]",
                    f"map_from_arrays(split('x,z', ','), split('one,two', ','))[{column}]",
                ]
            )
        test = self.comparison(pool)
        return self.random.choice(
            [
                f"({column} + {other})",
                f"({column} - {other})",
                f"COALESCE({column}, {other})",
                f"CASE WHEN {test} THEN {column} ELSE {other} END",
                f"({column} % 2)",
                f"named_struct('p', {column}, 'q', {other}).p",
                *(f"size(split({c.sql}, 'y'))" for c in pool if c.type == STR),
                *(f"size(filter(split({c.sql}, 'y'), e -> e <> 'x'))" for c in pool if c.type == STR),
            ]
        )

    def comparison(self, pool: Sequence[Col]) -> str:
        column = self.random.choice(list(pool))
        if self.chance(0.2):
            return f"{column.sql} IS {self.random.choice(['', 'NOT '])}NULL"
        word = self.random.choice(["=", "<>", "<", ">=", "<=>"])
        return f"{column.sql} {word} {self.expression(pool, column.type, 0)}"

    def correlation(self, pool: Sequence[Col], outer: Sequence[Col]) -> str:
        theirs = self.random.choice(list(outer))
        mine = [column for column in pool if column.type == theirs.type]
        if not mine:
            return self.comparison(outer)
        word = self.random.choice(["=", "=", "=", "<", "<=>"])
        return f"{self.random.choice(mine).sql} {word} {theirs.sql}"

    def condition(self, pool: Sequence[Col], depth: int, outer: Sequence[Col] = ()) -> str:
        reach = [*pool, *outer] if self.chance(0.2) else list(pool)
        if depth > 0 and self.chance(0.3):
            return self.subquery_condition(pool, depth - 1)
        if depth > 0 and self.chance(0.2):
            word = self.random.choice(["AND", "OR"])
            left, right = (self.condition(pool, depth - 1) for _ in range(2))
            return f"{self.random.choice(['', 'NOT '])}({left} {word} {right})"
        if self.chance(0.1):
            return f"NOT ({self.comparison(reach)})"
        return self.comparison(reach)

    def subquery_condition(self, pool: Sequence[Col], depth: int) -> str:
        outer = pool if self.chance(0.6) else ()
        negated = self.random.choice(["", "NOT "])
        kind = self.random.choice(["exists", "in", "in", "pair", "scalar", "quantified"])
        match kind:
            case "exists":
                return f"{negated}EXISTS ({self.query(depth, outer).sql})"
            case "scalar":
                value = self.expression(pool, INT, 0)
                return f"{value} {self.random.choice(['<', '=', '>='])} {self.scalar_subquery(pool, depth)}"
            case "quantified":
                value = self.expression(pool, INT, 0)
                words = f"{self.random.choice(['=', '>', '<>'])} {self.random.choice(['ANY', 'ALL'])}"
                return f"{value} {words} ({self.column_query(depth, INT, outer).sql})"
            case "pair":
                values = [self.expression(pool, INT, 0) for _ in range(2)]
                inner = self.conforming(depth, [Col("y1", INT), Col("y2", INT)], outer)
                return f"({', '.join(values)}) {negated}IN ({inner.sql})"
        type_ = self.random.choice([INT, STR])
        value = self.expression(pool, type_, 0)
        return f"{value} {negated}IN ({self.column_query(depth, type_, outer).sql})"

    def column_query(self, depth: int, type_: str, outer: Sequence[Col] = ()) -> Query:
        return self.conforming(depth, [Col("y", type_)], outer)

    def scalar_subquery(self, pool: Sequence[Col], depth: int) -> str:
        outer = pool if self.chance(0.7) else ()
        source, inner = self.source(max(depth, 0))
        parts = [self.comparison(inner)] if self.chance(0.4) else []
        if outer:
            parts.append(self.correlation(inner, outer))
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        return f"(SELECT {self.aggregate(inner)} FROM {source}{where})"
