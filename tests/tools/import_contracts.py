"""The import contract that import-linter lacks: an allow list. A forbidden list cannot name every third party."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class OnlyContract(Contract):
    """The packages `importers` import nothing but themselves, the standard library and `allowed`."""

    type_name = "only"

    importers = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001 - import-linter's signature
        importers: list[str] = self.importers  # type: ignore[assignment]
        allowed: list[str] = self.allowed  # type: ignore[assignment]
        breaches = [
            f"{module} -> {imported}"
            for package in importers
            for module in sorted({package, *graph.find_descendants(package)})
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if imported.partition(".")[0] not in sys.stdlib_module_names
            and not any(_is_inside(imported, root) for root in (package, *allowed))
        ]
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for breach in check.metadata["breaches"]:
            output.print_error(f"- {breach}", bold=False)
        output.new_line()


def _is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
