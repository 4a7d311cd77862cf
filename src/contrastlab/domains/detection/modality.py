"""How annotated pictures are seen and embedded: as pictures are."""

from contrastlab.pictures.domain import Modality
from contrastlab.pictures.modality import build_arguments, encoders, image_views

ANNOTATED_IMAGE = Modality("annotated image", image_views, encoders, build_arguments)
