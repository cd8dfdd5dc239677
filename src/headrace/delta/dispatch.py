"""Which rule serves which operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.delta import bilinear, bykey, leftwise, linear, whole
from headrace.delta.differ import Change, Differ, RuleFunction
from headrace.plan import nodes


def _join(differ: Differ, node: nodes.Join) -> Change:
    return (
        bilinear.join_tree(differ, node) if node.kind == "inner" else leftwise.left_driven_join(differ, node)
    )


RULES: Mapping[type[nodes.Node], RuleFunction] = MappingProxyType(
    {
        nodes.Scan: linear.scan,
        nodes.Constant: linear.constant,
        nodes.Project: linear.project,
        nodes.Filter: linear.filter_rows,
        nodes.Generate: linear.generate,
        nodes.UnionAll: linear.union_all,
        nodes.Join: _join,
        nodes.Aggregate: bykey.aggregate,
        nodes.Window: bykey.window,
        nodes.SetOperation: bykey.set_operation,
        nodes.TopN: bykey.top_n,
        nodes.Opaque: whole.opaque,
    }
)
