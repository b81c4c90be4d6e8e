"""Domain generalization without excess empirical risk, for PyTorch."""

from satisfice import penalties, registry, rules, solver
from satisfice.errors import UserError
from satisfice.penalties import domain_losses

__version__ = "0.1.0.dev0"

__all__ = ["UserError", "__version__", "domain_losses", "penalties", "registry", "rules", "solver"]
