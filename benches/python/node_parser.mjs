// Times the parser that the TypeScript SDK uses: node node_parser.mjs MODULES CHUNK ROUNDS FILE...
// Prints one JSON line per file: events, bytes, and the seconds of each round.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, join } from 'node:path'

const [modules, chunk, rounds, ...files] = process.argv.slice(2)
const require = createRequire(join(modules, 'node_modules', '@modelcontextprotocol', 'sdk', 'package.json'))
const { createParser } = require('eventsource-parser')

const parse = (chunks) => {
  let events = 0
  const decoder = new TextDecoder()
  const parser = createParser({ onEvent: () => { events += 1 } })
  for (const piece of chunks) parser.feed(decoder.decode(piece, { stream: true }))
  return events
}

for (const file of files) {
  const bytes = readFileSync(file)
  const chunks = []
  for (let at = 0; at < bytes.length; at += Number(chunk)) chunks.push(bytes.subarray(at, at + Number(chunk)))
  let events = 0
  const seconds = []
  for (let round = 0; round < Number(rounds); round += 1) {
    const start = process.hrtime.bigint()
    events = parse(chunks)
    seconds.push(Number(process.hrtime.bigint() - start) / 1e9)
  }
  console.log(JSON.stringify({ file: basename(file), bytes: bytes.length, events, seconds }))
}
