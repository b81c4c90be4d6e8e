"""The mathematics of SDG on tensors: no models, no autograd, no random state."""

from satisfice.solver import threads  # noqa: F401 - it must know of every fork
from satisfice.solver.blahut_arimoto import blahut_arimoto
from satisfice.solver.candidates import CANDIDATES, candidates, ordered_mean, widened
from satisfice.solver.distortion import PenaltyDistortion, penalty_distortion
from satisfice.solver.gamma import SCOPES, RunningMean, cost_magnitude, running_rate, segment_means
from satisfice.solver.philox import philox4x32, uniform, uniform_range
from satisfice.solver.reference import cost_in_blocks
from satisfice.solver.schedules import beta, progress, tolerance
from satisfice.solver.two_candidates import (
    check_iterations,
    log_odds_shifts,
    probability,
    sign_probability,
)
from satisfice.solver.update import BACKENDS, DRAWS, choose_backend, sdg_update

__all__ = [
    "BACKENDS",
    "CANDIDATES",
    "DRAWS",
    "SCOPES",
    "PenaltyDistortion",
    "RunningMean",
    "beta",
    "blahut_arimoto",
    "candidates",
    "check_iterations",
    "choose_backend",
    "cost_in_blocks",
    "cost_magnitude",
    "log_odds_shifts",
    "ordered_mean",
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
