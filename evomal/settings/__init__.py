"""The settings of a search."""

from evomal.settings.fields import AUTO_SPACE, PAPER_FILTERS, PRESETS, Filter
from evomal.settings.search_settings import WORKPLACE, SearchSettings, SettingDescription, describe, preset_of_file
from evomal.settings.texts import setting_text

__all__ = [
    "AUTO_SPACE",
    "PAPER_FILTERS",
    "PRESETS",
    "WORKPLACE",
    "Filter",
    "SearchSettings",
    "SettingDescription",
    "describe",
    "preset_of_file",
    "setting_text",
]
