"""The arguments of each command, in a module of its name, which imports nothing heavy.

``add_arguments(parser)`` describes the command and adds its arguments. ``check(args)`` refuses
values that do not go together; a command without such values has no ``check``.
"""
