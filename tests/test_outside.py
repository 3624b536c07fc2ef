"""Code from outside the package: a file by its path, a module by its name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jade.outside import load_module

pytestmark = pytest.mark.usefixtures("forget_modules")
WITH_A_DATACLASS = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Mine:
    word: str = "mine"
"""


def test_a_file_is_loaded_and_its_dataclasses_work(tmp_path: Path) -> None:
    path = tmp_path / "odd name-1.py"
    path.write_text(WITH_A_DATACLASS)
    assert load_module(str(path)).Mine().word == "mine"


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rule.py").write_text(f"where = {folder!r}")
    first, second = (load_module(str(tmp_path / folder / "rule.py")) for folder in ("a", "b"))
    assert (first.where, second.where) == ("a", "b")
    assert sys.modules[first.__name__] is first


def test_a_module_is_found_by_its_name() -> None:
    assert load_module("json.decoder").__name__ == "json.decoder"


def test_what_goes_wrong_inside_is_raised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("1 / 0")
    before = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        load_module(str(path))
    assert set(sys.modules) == before


def test_a_file_or_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.py"):
        load_module(str(tmp_path / "absent.py"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load_module("no_such_module")
