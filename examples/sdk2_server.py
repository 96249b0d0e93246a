"""A server of the MCP SDK, major 2, with one line more.

pip install 'counterfoil[gateway]' 'mcp>=2'
uvicorn --app-dir examples sdk2_server:app
"""

from counterfoil import resumable_app
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("inventory")


@server.tool()
async def count(upto: int, ctx: Context) -> str:
    """Count, and say so on the way."""
    for number in range(1, upto + 1):
        await ctx.report_progress(number, upto, f"counted {number}")
    return f"counted to {upto}"


app = resumable_app(server)
