"""Entry point: ``python profile.py --trials 10000`` profiles ResNet20 layer by layer."""

import sys

if __name__ == "profile":
    # This file hides the standard library's `profile`, which cProfile imports: give way to it.
    import os
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("profile", [os.path.dirname(os.__file__)])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["profile"] = module_from_spec(spec)
    spec.loader.exec_module(module)

if __name__ == "__main__":
    try:
        from chainer_profile.__main__ import main
    except ImportError as error:
        sys.exit(f"profile.py: error: {error}")
    except KeyboardInterrupt:  # before main could handle it
        sys.exit(130)
    sys.exit(main())
