# Values and errors as the protocol has them.


def clean(text):
    """Text that any JSON reader takes: without lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def describe_error(error, traceback_bytes_max):
    """An exception as the protocol's failure. The frames of this file, and of what runs flows, are left out of its traceback."""
    import traceback

    try:
        message = str(error)
    except Exception as unprintable:
        message = "its message cannot be printed: %r" % (unprintable,)
    failure = {
        "type": type(error).__qualname__,
        "message": clean(message[:ERROR_MESSAGE_CHARACTERS_MAX]),
    }
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame):
        trace = trace.tb_next
    try:
        if trace is not None or isinstance(error, SyntaxError):
            lines = traceback.format_exception(type(error), error, trace)
            failure["traceback"] = clean("".join(lines)[-traceback_bytes_max:])
    except Exception:
        pass
    for one in errors_in(error):
        retry_after = getattr(one, "retry_after", None)
        if hasattr(retry_after, "total_seconds"):
            retry_after = retry_after.total_seconds()
        if type(retry_after) in (int, float) and 0 <= retry_after < float("inf"):
            failure["retry_after"] = max(retry_after, failure.get("retry_after", 0))
        if getattr(one, "permanent", False) is True:
            failure["permanent"] = True
    return failure


def is_ours(frame):
    """Whether a frame is none of the script's code."""
    name = frame.f_globals.get("__name__")
    return frame.f_code.co_filename.startswith((SHIM_NAME, "<frozen importlib")) or str(name).startswith("gristmill._flow.")


def errors_in(error):
    """An exception, and where it is a group, such as one of `asyncio.TaskGroup`, all that it holds."""
    found = [error]
    for one in found:
        # Before Python 3.11, groups are a package's.
        if any(kind.__name__ == "BaseExceptionGroup" for kind in type(one).__mro__):
            found.extend(one.exceptions[: ERRORS_MAX - len(found)] if len(found) < ERRORS_MAX else ())
    return found


def refuse_type(value):
    if type(value) is Suspension:
        raise ValueError
    to_plain = getattr(sys.modules.get("_gristmill_process"), "to_plain", None)
    if to_plain is not None:
        return to_plain(value)
    raise TypeError(
        "a %s; return dict, list, str, int, float, bool or None, or convert it first" % type(value).__qualname__
    )


def make_encoder():
    """A function from a value to its JSON as pieces of text; raises what JSON cannot hold."""
    encoder = json.encoder
    if encoder.c_make_encoder is not None and encoder.c_encode_basestring is not None:
        # What json.dumps makes anew for every call, made once.
        make = encoder.c_make_encoder(
            None, refuse_type, encoder.c_encode_basestring, None, ":", ",", False, False, False
        )
    else:
        whole = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=refuse_type)

        def make(value, indent):
            return (whole.encode(value),)

    def encode(value):
        try:
            return make(value, 0)
        except TypeError as error:
            plain_keys = getattr(sys.modules.get("_gristmill_process"), "plain_keys", None)
            if plain_keys is None or not str(error).startswith("keys must be"):
                raise
            return make(plain_keys(value), 0)

    return encode


def not_json(error):
    """Why a value could not be serialised, in words that help."""
    if isinstance(error, UnicodeEncodeError):
        return clean("main returned text with a lone surrogate, which is not Unicode: %s" % error)
    if isinstance(error, RecursionError):
        return "main returned a value that is nested too deeply or contains itself"
    if isinstance(error, ValueError) and "JSON compliant" in str(error):
        return "main returned NaN or an infinity, which JSON cannot hold: return None or text instead"
    return clean("main returned what JSON cannot hold: %s" % error)


