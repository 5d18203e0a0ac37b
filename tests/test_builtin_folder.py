"""Where the built-in tools are; that they load is tested in test_registry."""

from __future__ import annotations

import pytest

from yiemagent import builtin_folder
from yiemagent.builtin_folder import builtin_tools_dir, folder_to_load
from yiemagent.errors import ConfigurationError


@pytest.mark.parametrize("group", ["", "file", "..", "/"])
def test_an_unknown_group_of_built_in_tools_is_told(group):
    """A group that does not exist is a configuration error that names those that do."""
    with pytest.raises(ConfigurationError, match=r"there are: .*files, shell, web"):
        builtin_tools_dir(group)


def test_the_built_in_tools_are_found_where_they_are(tmp_path):
    """Inside the installed package, else beside it; where they are in neither place, the error says what to do."""
    package = tmp_path / "yiemagent"
    with pytest.raises(ConfigurationError, match="install yiemagent again"):
        builtin_folder._builtin_folder(package)
    (tmp_path / "tools").mkdir()
    assert builtin_folder._builtin_folder(package) == tmp_path / "tools"
    (package / "builtin_tools").mkdir(parents=True)

    assert builtin_folder._builtin_folder(package) == package / "builtin_tools"


def test_a_folder_that_is_not_there_is_told_with_one_that_is(tmp_path, monkeypatch):
    """The error shows where the folder was looked for, and names what gives the folder of the built-in tools."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        folder_to_load("tools")

    assert str(caught.value) == (
        f"there is no folder '{tmp_path / 'tools'}' to load tools from; give one that holds tool files, or "
        "builtin_tools_dir() for the tools that come with the library"
    )
    assert folder_to_load(builtin_tools_dir()) == builtin_tools_dir()
