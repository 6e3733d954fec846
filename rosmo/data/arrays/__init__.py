"""Arrays of one's own as steps of experience: flat rows, transitions, episodes, and files of them."""

from rosmo.data.arrays.episodes import from_episodes
from rosmo.data.arrays.files import SUFFIXES, from_file
from rosmo.data.arrays.flat import from_flat
from rosmo.data.arrays.transitions import from_transitions

__all__ = ["SUFFIXES", "from_episodes", "from_file", "from_flat", "from_transitions"]
