"""A server of the MCP SDK, major 1, with one line more.

pip install 'counterfoil[gateway]' 'mcp<2'
uvicorn --app-dir examples sdk1_server:app
"""

from counterfoil import resumable_app
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("inventory")


@server.tool()
async def count(upto: int, ctx: Context) -> str:
    """Count, and say so on the way."""
    for number in range(1, upto + 1):
        await ctx.report_progress(number, upto, f"counted {number}")
    return f"counted to {upto}"


app = resumable_app(server)
