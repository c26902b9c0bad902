"""Exceptions as answers to the rank."""

import traceback


def answer(error, order):
    """An exception as an answer."""
    # Only a probe asks for what may not be there.
    is_lacking = order == "probe" and lacks(error)
    last = traceback.format_exception_only(type(error), error)[-1].strip()
    return {"raised": last, "traceback": traceback.format_exc(), "lacking": is_lacking}


# Words by which torch 1.13 to 2.15 say it, in small letters.
LACKING = (
    "not support",
    "no support",
    "unsupported",
    "not implemented",
    "invalid scalar type",
    "cannot use reduceop",
    "can't be cast to the desired output type",
)


def lacks(error):
    """Returns whether an exception says that a backend has no such operation or type."""
    text = str(error).lower()
    if isinstance(error, NotImplementedError):
        return True
    if isinstance(error, AttributeError):
        return text.startswith("module 'torch")
    return any(words in text for words in LACKING)
