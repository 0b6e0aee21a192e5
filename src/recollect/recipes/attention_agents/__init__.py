"""Six agents with attention (George 2021), and the study that compares them.

``agents.py`` has the table of the agents: what ``recollect train WORLD --agent NAME`` starts from. ``study.py`` has the
recipe ``attention-agents``: the games, and the changes of section 4.2.
"""

from recollect.recipes.attention_agents.agents import ATTENTION_AGENTS, attention_agent

__all__ = ["ATTENTION_AGENTS", "attention_agent"]
