"""List scheduler whose rule is taught on other programs, and adapted to this one."""
