
# Flows of scripts, by the modules of the Python package, whose text is here.

FLOW_PACKAGE = "_gristmill_flows"


def flow(*arguments, **options):
    """Makes a function of a script a durable flow of each of its items, in place of main."""
    return flow_modules().flow(*arguments, **options)


def flow_exception(name):
    """What a script without the package names as gristmill.StepFailed."""
    if name not in ("StepFailed", "FlowError"):
        raise AttributeError("module 'gristmill' has no attribute %r" % name)
    return getattr(flow_modules(), name)


def flow_modules():
    """The module of scripts' flows. It and what it imports are made at their first use."""
    name = FLOW_PACKAGE + "._flow.script"
    if name not in sys.modules:
        for package in (FLOW_PACKAGE, FLOW_PACKAGE + "._flow"):
            module = sys.modules[package] = type(sys)(package)
            module.__path__ = []
        sys.meta_path.append(FlowFinder)
    import importlib

    return importlib.import_module(name)


class FlowFinder:
    """Finds the modules in this program."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        import importlib.machinery

        text = FLOW_MODULES.get(name.partition(".")[2]) if name.startswith(FLOW_PACKAGE + ".") else None
        return None if text is None else importlib.machinery.ModuleSpec(name, FlowFinder)

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        # Its frames are in no traceback, as those of this program.
        exec(compile(FLOW_MODULES[module.__name__.partition(".")[2]], SHIM_NAME, "exec"), vars(module))


def flow_of(module, file_name):
    """The flow that a script defines in place of main; None where it has a main, or no flow."""
    main = getattr(module, "main", None)
    if main is not None:
        return main if getattr(main, "is_gristmill_flow", False) is True else None
    flows = [value for value in vars(module).values() if getattr(value, "is_gristmill_flow", False) is True]
    if len(flows) > 1:
        names = ", ".join(one.name for one in flows)
        raise NoMain("%s has several flows (%s): name the one that runs its items `main`" % (file_name, names))
    return flows[0] if flows else None

