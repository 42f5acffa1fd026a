"""Why workers were lost, in the words of a record."""

TOO_SMALL = "its worker ran out of memory"


def reason_of(error: Exception) -> str:
    """Why a worker was lost, in the words of a record: no numbers of processes, which differ from run to run."""
    text = f"{type(error).__name__} {error}"
    if "OutOfMemory" in text or "running low on memory" in text:
        return TOO_SMALL
    if "NodeDied" in text or "node has died" in text or "node was terminated" in text:
        return "its worker's machine was lost"
    return "its worker died"
