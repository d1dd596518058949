"""yourname keeps what every launcher must keep: the suite brings the tests. What this one does, is tested below."""

import pytest
from geomx_yourname import Yourname
from geomx_yourname.launcher import Launcher

from geomx.api import ConfigError
from geomx.testing.launcher_suite import LauncherSuite


class TestLauncher(LauncherSuite):
    choice = "launcher=yourname"


def test_a_command_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="launcher.before: 'no-such-command' given"):
        Launcher(Yourname(before=["no-such-command"])).prepare([])
