"""What tests of commands share with those of others."""

from command_line import ask, nova, plan, problem, refused

__all__ = ["ask", "nova", "plan", "problem", "refused"]
