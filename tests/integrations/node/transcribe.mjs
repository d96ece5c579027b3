// OpenAI's client for Node with its defaults, but for the address: a line of JSON for each way to a text.
// node transcribe.mjs https://HOST:PORT RECORDING.wav RECORDING.pcm

import { createReadStream, readFileSync } from "node:fs";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const [address, recording, pcm] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "any" });
const show = (way, text) => console.log(JSON.stringify({ way, text }));

const whole = await client.audio.transcriptions.create({ file: createReadStream(recording), model: "whisper-1" });
show("recording", whole.text);

const events = await client.audio.transcriptions.create({
  file: createReadStream(recording),
  model: "gpt-4o-transcribe",
  stream: true,
});
let joined = "";
for await (const event of events) {
  if (event.type === "transcript.text.delta") joined += event.delta;
}
show("stream", joined);

// Realtime: 24 kHz PCM, committed by the client.
const realtime = new OpenAIRealtimeWS({ model: "gpt-realtime" }, client);
const failed = new Promise((_, reject) => realtime.on("error", reject));
const completed = new Promise((resolve) =>
  realtime.on("conversation.item.input_audio_transcription.completed", ({ transcript }) => resolve(transcript)),
);
realtime.socket.on("open", () => {
  realtime.send({
    type: "session.update",
    session: {
      type: "transcription",
      audio: { input: { format: { type: "audio/pcm", rate: 24000 }, turn_detection: null } },
    },
  });
  const audio = readFileSync(pcm);
  for (let start = 0; start < audio.length; start += 48000) {
    realtime.send({ type: "input_audio_buffer.append", audio: audio.subarray(start, start + 48000).toString("base64") });
  }
  realtime.send({ type: "input_audio_buffer.commit" });
});
show("realtime", await Promise.race([completed, failed]));
realtime.close();
