"""What an encoder is asked to do, and how it is scored."""

from contrastlab.tasks.linear import accuracy, linear_lbfgs, linear_probe, linear_sgd
from contrastlab.tasks.neighbours import knn, nearest_neighbour
from contrastlab.tasks.representations import encode, frozen, represent

__all__ = [
    "accuracy",
    "encode",
    "frozen",
    "knn",
    "linear_lbfgs",
    "linear_probe",
    "linear_sgd",
    "nearest_neighbour",
    "represent",
]
