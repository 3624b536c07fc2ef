"""One tree of errors, one type per boundary crossed.

    JadeError                 anything a user should read as one line
    ├── ConfigError           a setting that cannot be used; names the field
    ├── DocumentError         a document or question file that cannot be read
    ├── IndexUnusable         an index folder that is damaged, newer than this code, or of the wrong kind
    ├── RetrievalFailed       a search that did not come back
    ├── WeightsMissing        model weights that cannot be had
    ├── BackboneFailed        a generation that did not come back
    ├── TraceUnreadable       a trace file that is damaged or newer than this code
    └── TrainingStopped       a run that the stability guard ended

The message says what is wrong, names the value, and says what to do. The CLI prints it alone, without a traceback.
"""

from __future__ import annotations


class JadeError(Exception):
    """Base of all errors that are the caller's to read."""


class ConfigError(JadeError):
    pass


class DocumentError(JadeError):
    pass


class IndexUnusable(JadeError):
    pass


class RetrievalFailed(JadeError):
    pass


class WeightsMissing(JadeError):
    pass


class BackboneFailed(JadeError):
    pass


class TraceUnreadable(JadeError):
    pass


class TrainingStopped(JadeError):
    pass
