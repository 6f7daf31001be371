"""A list scheduler whose rule was learned on other programs, and is searched for on this one."""
