"""What a part of a recipe needs of the other four choices, and what it offers them.

A recipe can exist if every need of its parts is met by an offer of another. A new part declares its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Generator
    from torch.nn import ModuleList

CHOICES = ("views", "keys", "negatives", "positives", "objective")
"""Names of the five choices, in the order in which a recipe is printed."""

ROW_PER_ITEM = "keys: a stored row for each item"
FURTHER_KEYS = "keys: of further views of an item, without gradient"
WHOLE_BALL = "negatives: all of the closest keys"
ONE_POSITIVE = "positives: the item's own key and nothing else"
SINGLE_KEY = "positives: one key of the item, perhaps with neighbours"
OWN_KEYS = "positives: keys of the item only, each by itself"
EACH_KEY = "positives: every key of the item, each by itself"
LABELLED = "keys: the class of each key"
SAME_CLUSTER = "positives: neighbours of the same cluster"
TARGETS = "views: channels that are there to be predicted"
POSITIVE_ALONE = "objective: the positive alone"
READS_EMBEDDINGS = "objective: embeddings of both views in place of scores"
PROJECTIONS = "keys: embeddings of no set length"
LOG_SUM_EXP = "objective: logsumexp over positive and negatives"


def view_count(count: int) -> str:
    """The offer of views that make ``count`` views of each item."""
    return f"views: {count} of each item"


class Choices:
    """The five choices as a need sees them: the base of :class:`contrastlab.methods.Recipe`."""

    views: Any
    keys: Any
    negatives: Any
    positives: Any
    objective: Any


@dataclass(frozen=True)
class Need:
    """Something that another choice must offer."""

    offer: str  # that some part of the recipe has among its offers
    reason: str  # why the recipe cannot exist without it: a sentence without its full stop
    given: str = ""  # what the recipe has in its place, in words

    @property
    def message(self) -> str:
        """Reason, and what was given."""
        if not self.given:
            return self.reason
        return f"{self.reason}; {self.given}"


@dataclass(frozen=True)
class Setup:
    """What the parts of a run make their state from: an encoder per stream, the recipe's views, N items in classes.

    ``generator`` (CPU) draws initial weights and keys of ``dim`` d. ``k_means`` are the clusters and runs that other
    parts ask for, (0, 0) for none; ``reads_labels`` says whether a part asks for the classes of the keys.
    ``directions`` counts the losses of a step, which the keys decide: they see 0.
    """

    encoders: ModuleList
    views: Any
    items: int
    classes: int
    dim: int
    generator: Generator
    k_means: tuple[int, int] = (0, 0)
    reads_labels: bool = False
    directions: int = 0


class Part:
    """One choice of a recipe. Subclasses are frozen dataclasses."""

    @property
    def offers(self) -> frozenset[str]:
        """What other parts may need."""
        return frozenset()

    def needs(self, given: Choices) -> Iterator[Need]:
        """What other parts must offer; ``given`` is for the reasons."""
        return iter(())

    @property
    def k_means(self) -> tuple[int, int]:
        """Clusters of the stored keys, and runs of k-means, that the part reads; (0, 0) for none."""
        return 0, 0

    @property
    def reads_labels(self) -> bool:
        """Whether the part reads the classes of the items, which must then be known."""
        return False

    @property
    def bounds_information(self) -> bool:
        """Whether with this part log K minus InfoNCE still is a lower bound on the mutual information."""
        return False

    @property
    def latex(self) -> str:
        """The part's piece of the equation."""
        raise NotImplementedError(f"{type(self).__name__} has no latex, its piece of the equation")
