"""Launchers: where nodes run. Each is a thin layer over `launcher.exec_prefix` and `topology.hosts`."""
