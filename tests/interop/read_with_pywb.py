"""Run by .venv-peers: reads every capture of WARC files with pywb and prints a JSON line for each.

usage: read_with_pywb.py FOLDER-OF-WARCS
"""

import hashlib
import io
import json
import sys
from pathlib import Path

from pywb.indexer.cdxindexer import write_multi_cdx_index
from pywb.warcserver.index.cdxobject import CDXObject
from pywb.warcserver.index.cdxops import process_cdx
from pywb.warcserver.index.indexsource import FileIndexSource
from pywb.warcserver.index.query import CDXQuery
from pywb.warcserver.resource.responseloader import WARCPathLoader
from warcio.bufferedreaders import ChunkedDataReader
from warcio.statusandheaders import StatusAndHeadersParser


def main(folder):
    index = Path(folder) / "pywb.cdxj"
    warcs = sorted(str(path) for path in Path(folder).glob("*.warc.gz"))
    write_multi_cdx_index(str(index), warcs, sort=True, cdxj=True, post_append=True)
    source = FileIndexSource(str(index))
    loader = WARCPathLoader(str(folder) + "/", lambda params: (source_load(source, params), {}))
    for line in index.read_bytes().splitlines():
        if not line.strip() or line.startswith(b"!"):
            continue
        cdx = CDXObject(line)
        cdx["source"] = "peer"
        cdx["status"] = "200"  # or pywb would refuse to read a redirect to its own address
        _, http, stream = loader.load_resource(cdx, {"url": cdx["url"]})
        status = StatusAndHeadersParser([], verify=False).parse(io.BytesIO(http)) if http else None
        if status and (status.get_header("transfer-encoding") or "").lower() == "chunked":
            stream = ChunkedDataReader(stream)
        digest = hashlib.sha256(stream.read()).hexdigest()
        row = {"url": cdx["url"], "filename": cdx["filename"], "offset": int(cdx["offset"])}
        sys.stdout.write(json.dumps({**row, "indexed": cdx["digest"], "payload": digest}) + "\n")


def source_load(source, params):
    """Find the original of a revisit as pywb's own server does."""
    query = CDXQuery(params)
    return process_cdx(source.load_index(query.params), query)


main(sys.argv[1])
