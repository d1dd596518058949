"""The exceptions of geomx whose message is one sentence, written for the user and complete."""


class Told(Exception):
    """Printed as it is, without a stack trace."""


class ConfigError(Told):
    """The configuration can't be run: names the field, what was given and what is allowed. Exit code 2."""


class Forbidden(ConfigError):
    """Each choice is right, together they are not: a sweep drops such a job, a single run is refused."""


class RunFailed(Told):
    """A run was started and failed, or some jobs of a sweep did. Exit code 1."""
