"""Installed choices as Hydra sees them: a config source `geomx://` in front of conf/."""

import dataclasses

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf, StringNode, open_dict

from geomx import plugins
from geomx.config.network import Network
from geomx.config.root import MANY, Config
from geomx.errors import ConfigError
from geomx.options import fields_of


def node(group: str, name: str) -> DictConfig:
    """What Hydra composes for a choice. Raises ConfigError for a plugin that is broken in any way."""
    cls = plugins.load(group, name)
    try:
        cfg: DictConfig = OmegaConf.structured(cls)  # refuses, e.g., Literal and unions of containers
    except Exception as e:
        reason = (str(e).splitlines() or ["no message"])[0]
        raise ConfigError(f"{group}={name} is broken: {type(e).__name__}: {reason}") from e
    _open_mappings(cfg, cls)
    if group not in MANY:  # which choice this is; readonly, since a user who sets it would only contradict the group
        with open_dict(cfg):
            cfg["name"] = StringNode(name, flags={"readonly": True})
    return cfg


def _open_mappings(cfg: DictConfig, cls: type) -> None:
    """Hydra closes mappings too; this lets them take new keys without a '+'."""
    for f in dataclasses.fields(cls):
        if f.default_factory is dataclasses.MISSING:
            continue
        if isinstance(default := f.default_factory(), dict):
            OmegaConf.set_struct(cfg[f.name], False)
        elif fields_of(default):
            _open_mappings(cfg[f.name], type(default))


class PluginSource(ConfigSource):
    """geomx://: Hydra asks it for the choices of a group and for the config of a choice."""

    @staticmethod
    def scheme() -> str:
        return "geomx"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path.rstrip("/") in {"", *(group for group, _ in plugins.offers())}

    def _parts(self, config_path: str) -> tuple[str, list[str]]:
        group, _, name = config_path.removesuffix(".yaml").rpartition("/")
        return group, name.split("+") if group in MANY else [name]

    def is_config(self, config_path: str) -> bool:
        group, names = self._parts(config_path)
        return all((group, n) in plugins.offers() for n in names)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path == "":
            return sorted({g for g, _ in plugins.offers()}) if results_filter != ObjectType.CONFIG else []
        return [n for n in plugins.choices(config_path) if (config_path, n) in plugins.offers()]

    def load_config(self, config_path: str) -> ConfigResult:
        if not self.is_config(config_path):
            raise ConfigLoadError(f"{config_path} is not installed")
        group, names = self._parts(config_path)
        if len(names) > 1:  # scheduler=p3+tsengine is scheduler=[p3,tsengine] for shells that read brackets (zsh)
            return ConfigResult(self.provider, "geomx://", OmegaConf.create({"defaults": names}), {"package": None})
        package = f"{group}.{names[0]}" if group in MANY else group
        return ConfigResult(self.provider, "geomx://", node(group, names[0]), {"package": package})


class PluginPath(SearchPathPlugin):
    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.prepend("geomx", "geomx://", "main")  # before conf/, so that a clash with a file there is seen


def install() -> None:
    """Before hydra.main or hydra.initialize. By hand, since Hydra scans only the package hydra_plugins."""
    Plugins.instance().register(PluginSource)
    Plugins.instance().register(PluginPath)
    root = OmegaConf.structured(Config)
    _open_mappings(root.network, Network)
    ConfigStore.instance().store("geomx", root, provider="geomx")
