"""The mathematics of SDG on tensors: no models, no autograd, no random state."""

from satisfice.solver.blahut_arimoto import blahut_arimoto
from satisfice.solver.candidates import CANDIDATES, candidates, widened
from satisfice.solver.distortion import PenaltyDistortion, penalty_distortion
from satisfice.solver.gamma import SCOPES, cost_magnitude, running_rate, segment_means
from satisfice.solver.philox import philox4x32, uniform, uniform_range
from satisfice.solver.schedules import beta, progress, tolerance
from satisfice.solver.two_candidates import log_odds_shifts, probability, sign_probability
from satisfice.solver.update import DRAWS, sdg_update

__all__ = [
    "CANDIDATES",
    "DRAWS",
    "SCOPES",
    "PenaltyDistortion",
    "beta",
    "blahut_arimoto",
    "candidates",
    "cost_magnitude",
    "log_odds_shifts",
    "penalty_distortion",
    "philox4x32",
    "probability",
    "progress",
    "running_rate",
    "sdg_update",
    "segment_means",
    "sign_probability",
    "tolerance",
    "uniform",
    "uniform_range",
    "widened",
]
