"""The client's side of TLS: whom it trusts, and what a handshake that failed means."""

import ssl

from fleet.cli.exits import CommandError, Exit


def trusting(ca: str | None) -> ssl.SSLContext:
    """The certificates of the file `ca`, or else those that this machine trusts, a site's own among them. Raises
    CommandError."""
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as exc:
        raise CommandError(f"--ca: {ca}: there is no certificate in PEM form in it", Exit.USAGE) from exc
    except OSError as exc:
        raise CommandError(f"--ca: {ca}: {exc.strerror}", Exit.USAGE) from exc


def refusal(exc: BaseException, url: str) -> CommandError | None:
    """What to say where TLS is what failed; trying again would not help."""
    found: BaseException | None = exc
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    if found is None:
        return None
    if isinstance(found, ssl.SSLCertVerificationError):
        said = (
            f"{url}: its certificate is not trusted: {found.verify_message}. If the service is the right one, name the "
            "file of whoever signed it with --ca FILE (or FLEET_CA), and the service by a name in the certificate"
        )
    elif found.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        said = f"{url}: no TLS is spoken there: is it http://?"
    else:
        said = f"{url}: TLS failed: {found.reason or found}"
    return CommandError(said, Exit.NOT_REACHED)
