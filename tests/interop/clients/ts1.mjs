// The client of the official TypeScript SDK, major 1.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { main } from "./plan.mjs";

await main(async (url, hearing, headers) => {
  const client = new Client({ name: "interop", version: "1" }, { capabilities: { elicitation: {} } });
  client.onerror = (error) => hearing.strays.push(String(error));
  client.setRequestHandler(ElicitRequestSchema, (request) => ({
    action: "accept",
    content: { text: `asked ${request.params.message}` },
  }));
  client.setNotificationHandler(LoggingMessageNotificationSchema, (notice) => {
    hearing.notices.push(String(notice.params.data));
  });
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  await client.connect(transport);
  if (transport.protocolVersion !== "2025-11-25") throw new Error(`agreed on ${transport.protocolVersion}`);
  await client.listTools();
  return {
    callTool: (call, options) => client.callTool({ name: call.tool, arguments: call.arguments }, undefined, options),
    end: async () => {
      client.onerror = undefined;
      await transport.terminateSession().catch(() => {});
      await client.close();
    },
  };
});
