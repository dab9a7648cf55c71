"""What tests of the command line share."""

from command_line import ask, nova, overloaded, plan, problem, refused

__all__ = ["ask", "nova", "overloaded", "plan", "problem", "refused"]
