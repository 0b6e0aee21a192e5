"""Bots that hang, raise or never arrive, for tests of what guards against them; other processes import them."""

import os
import time

from recollect.tasks.gymnasium.babyai import babyai_bot


class Sleeping:
    """Never answers."""

    def replan(self, action_taken=None):
        """Sleep."""
        time.sleep(1000)


def sometimes_asleep(environment):
    """Never answers in a third of the episodes, raises in another, and else is minigrid's."""
    kind = (int(environment.unwrapped.agent_pos[0]) + int(environment.unwrapped.agent_pos[1])) % 3
    if kind == 0:
        return Sleeping()
    if kind == 1:
        raise AssertionError("no plan")
    return babyai_bot(environment)


def always_asleep(environment):
    """Never answers."""
    return Sleeping()


def killed_later(environment):
    """minigrid's, but the process dies once 20 episodes have begun."""
    killed_later.begun += 1
    if killed_later.begun > 20:
        os._exit(9)
    return babyai_bot(environment)


killed_later.begun = 0
