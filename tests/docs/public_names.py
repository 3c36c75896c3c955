"""Which modules are public: documentation and examples import from these only, and only names in their ``__all__``."""

import importlib
import pkgutil

import panstream.testing

PACKAGES = (
    "panstream",
    "panstream.algorithms",
    "panstream.algorithms.continual",
    "panstream.algorithms.continual_users",
    "panstream.algorithms.density",
    "panstream.algorithms.distinct",
    "panstream.algorithms.heavy_hitters",
    "panstream.algorithms.planning",
    "panstream.algorithms.turnstile",
    "panstream.audit",
    "panstream.core",
    "panstream.distributed",
    "panstream.distributed.sharded",
    "panstream.distributed.two_party",
    "panstream.engine",
    "panstream.models.federated",
    "panstream.models.networks",
    "panstream.papers",
    "panstream.privacy",
    "panstream.testing.memory",
)
MODULES = (
    "panstream.distributed.sharded.spark",
    "panstream.distributed.beam",
    "panstream.distributed.spark",
    "panstream.errors",
    *(
        f"panstream.testing.{module.name}"
        for module in pkgutil.iter_modules(panstream.testing.__path__)
        if not module.ispkg and not module.name.startswith("_")
    ),
)


def public_names(module: str) -> set[str]:
    """Return what may be imported from a module: of a package its ``__all__``, of a module what it defines."""
    loaded = importlib.import_module(module)
    if module in PACKAGES:
        return set(loaded.__all__)
    if module not in MODULES:
        return set()
    return {
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and getattr(value, "__module__", module) == module
    }
