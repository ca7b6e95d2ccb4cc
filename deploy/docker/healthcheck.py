"""Asks the server of this container whether work can be sent to it; exits with 0 if so. For HEALTHCHECK: the image has no curl.

It reads the variables ARRIERO_HTTP_..., not the options of the command line.
"""

import http.client
import os
import ssl
import sys

PATH = "/v1/health/ready"
SECONDS_MAX = 4.0  # the server gives the store two
EVERY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def find_obstacle() -> str:
    """Find why the server is not ready; empty: it is."""
    host = os.environ.get("ARRIERO_HTTP_HOST", "127.0.0.1")
    address = EVERY_ADDRESS.get(host, host)
    port = int(os.environ.get("ARRIERO_HTTP_PORT", "8478"))
    known = [name.strip() for name in os.environ.get("ARRIERO_HTTP_HOSTS", "").split(",") if name.strip()]
    connection: http.client.HTTPConnection
    if os.environ.get("ARRIERO_HTTP_TLS_CERT"):
        # The certificate is for the name by which clients call, and nothing secret is sent from here.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, port, timeout=SECONDS_MAX, context=context)
    else:
        connection = http.client.HTTPConnection(address, port, timeout=SECONDS_MAX)
    try:
        connection.request("GET", PATH, headers={"Host": known[0]} if known else {})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {address}:{port}: {error}"
    finally:
        connection.close()
    return "" if status == 200 else f"{PATH} answers {status}; the log of the server says why"


if __name__ == "__main__":
    sys.exit(find_obstacle() or 0)
