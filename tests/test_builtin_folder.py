"""Where the built-in tools are; that they load is tested in test_registry."""

from __future__ import annotations

import pytest

from yiemagent import builtin_folder
from yiemagent.builtin_folder import builtin_tools_dir
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
