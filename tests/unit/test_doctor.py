"""The doctor: a line for each subject, and what to do about what is missing."""

import socket

import pytest

from geomx import doctor, plugins


def test_a_missing_need_is_not_a_note():
    def look():
        raise doctor.Missing("install it")

    assert doctor.examine(doctor.Check("x", True, look)) == ("MISSING", "install it")
    assert doctor.examine(doctor.Check("x", False, look)) == ("note", "install it")
    assert doctor.examine(doctor.Check("x", True, lambda: "there")) == ("ok", "there")


def test_exit_code(monkeypatch, capsys):
    def look():
        raise doctor.Missing("install it")

    monkeypatch.setattr(doctor, "CHECKS", (doctor.Check("a", False, look), doctor.Check("b", True, lambda: "3.11")))
    assert doctor.main() == 0
    monkeypatch.setattr(doctor, "CHECKS", (doctor.Check("a", True, look),))
    assert doctor.main() == 1
    assert "MISSING  a                    install it" in capsys.readouterr().out


def test_a_host_name_without_address(monkeypatch):
    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(doctor.Missing, match=r"can't be resolved .*/etc/hosts"):
        doctor.own_name()


def test_few_files(monkeypatch):
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (256, 4096))
    with pytest.raises(doctor.Missing, match="256 files may be open in a process, 1024 are advised: ulimit -n 4096"):
        doctor.open_files()


def test_no_installation(monkeypatch):
    monkeypatch.setattr(plugins, "offers", dict)
    with pytest.raises(doctor.Missing, match="geomx must be installed"):
        doctor.installed()


def test_a_store_that_can_not_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEOMX_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(doctor.Missing, match="set GEOMX_HOME, or use tracking=none"):
        doctor.mlflow()


@pytest.mark.parametrize("name", ["python", "installed", "loopback", "shared_memory", "socket_files", "cores"])
def test_what_every_machine_has(name):
    assert getattr(doctor, name)()
