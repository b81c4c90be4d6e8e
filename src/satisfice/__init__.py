"""Domain generalization without excess empirical risk, for PyTorch."""

from satisfice import penalties, registry, rules, solver
from satisfice.errors import UserError
from satisfice.penalties import domain_losses

__all__ = ["UserError", "domain_losses", "penalties", "registry", "rules", "solver"]
