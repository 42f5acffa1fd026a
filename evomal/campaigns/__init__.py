"""Campaigns: tables that are declared in a file, measured cell by cell, and rendered from their data."""

from evomal.campaigns.declaration import Campaign, CampaignTask, read_campaign
from evomal.campaigns.record import CampaignResult, read_result
from evomal.campaigns.running import run_campaign

__all__ = ["Campaign", "CampaignResult", "CampaignTask", "read_campaign", "read_result", "run_campaign"]
