"""Pictures in NumPy's files, of any number of channels and of 8 or 16 bits, such as those of satellites."""

from contrastlab.pictures.domain import Domain

DOMAIN = Domain(
    package="contrastlab.domains.arrays",
    modalities={},
    readers={"arrays": ("image", "contrastlab.domains.arrays.data:load_arrays")},
)
