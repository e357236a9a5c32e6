// Runs OpenID Connect providers on loopback for tests. Each has a name, and the issuer is the URL of that path.
//
// Usage: node provider.mjs [COMMAND [ARGUMENT]…]. With a command, it runs it with the URL in IPSEITY_TEST_OIDC_PROVIDER and
// ends with its exit code. Without one, it prints the URL and runs until it is stopped.
//
// `PUT /NAME` creates or changes a provider. Its JSON body replaces the settings that it contains:
//   clients        client metadata as in OpenID Connect Dynamic Client Registration
//   accounts       claims by login, such as {"ada": {"email": "ada@example.com", "email_verified": true}}
//   configuration  settings of oidc-provider
//   discovery      members that replace those of the discovery document
//   claims         claims that replace those of ID tokens
//   rotate         true: sign with new keys, and publish only these

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { decodeJwt, exportJWK, generateKeyPair, importJWK, SignJWT } from 'jose';
import { Provider } from 'oidc-provider';

const ALGORITHMS = ['RS256', 'ES256', 'EdDSA'];

// Keeps sign-ins, codes and tokens of a provider, also when its settings change. Nothing expires.
class Store {
  constructor(entries, model) {
    Object.assign(this, { entries, model });
  }

  async upsert(id, payload) {
    this.entries.set(`${this.model}:${id}`, { ...payload });
  }

  async find(id) {
    return this.entries.get(`${this.model}:${id}`);
  }

  async findByUid(uid) {
    return [...this.entries.values()].find((payload) => payload.kind === this.model && payload.uid === uid);
  }

  async consume(id) {
    (await this.find(id)).consumed = true;
  }

  async destroy(id) {
    this.entries.delete(`${this.model}:${id}`);
  }

  async revokeByGrantId(grantId) {
    for (const [key, payload] of this.entries) if (payload.grantId === grantId) this.entries.delete(key);
  }
}

class TestProvider {
  #settings = { clients: [], accounts: {}, configuration: {}, discovery: {}, claims: {} };
  #issuer;
  #entries = new Map();
  #keys = [];
  #callback;

  constructor(issuer) {
    this.#issuer = issuer;
  }

  async change({ rotate, ...settings }) {
    Object.assign(this.#settings, settings);
    if (rotate || !this.#keys.length) this.#keys = await Promise.all(ALGORITHMS.map(generateKey));
    const { clients, configuration } = this.#settings;
    const provider = new Provider(this.#issuer, {
      clients,
      adapter: (model) => new Store(this.#entries, model),
      jwks: { keys: this.#keys },
      claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
      cookies: { keys: ['tests only'] },
      findAccount: (context, login) => ({
        accountId: login,
        claims: () => ({ sub: login, ...this.#settings.accounts[login] }),
      }),
      ...configuration,
    });
    provider.use(async (context, next) => {
      await next();
      await this.#misbehave(context);
    });
    this.#callback = provider.callback();
  }

  // `request.url` is the path below the issuer.
  handle(request, response) {
    return this.#callback(request, response);
  }

  async #misbehave({ oidc, body }) {
    if (oidc?.route === 'discovery') Object.assign(body, this.#settings.discovery);
    if (!body?.id_token || !Object.keys(this.#settings.claims).length) return;
    const key = this.#keys[0];
    body.id_token = await new SignJWT({ ...decodeJwt(body.id_token), ...this.#settings.claims })
      .setProtectedHeader({ alg: key.alg, kid: key.kid })
      .sign(await importJWK(key));
  }
}

async function generateKey(alg) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return { ...(await exportJWK(privateKey)), alg, use: 'sig', kid: crypto.randomUUID() };
}

const providers = new Map();
const server = createServer(async (request, response) => {
  const [, name, path] = request.url.match(/^\/(\w+)(.*)$/) ?? [];
  if (name && request.method === 'PUT' && !path) {
    const provider = providers.get(name) ?? new TestProvider(`${url}/${name}`);
    await provider.change(await json(request));
    providers.set(name, provider);
    response.writeHead(204).end();
  } else if (providers.has(name)) {
    request.originalUrl = request.url;
    request.url = path;
    await providers.get(name).handle(request, response);
  } else {
    response.writeHead(404).end();
  }
});
await once(server.listen(0, '127.0.0.1'), 'listening');
const url = `http://127.0.0.1:${server.address().port}`;

const [command, ...args] = process.argv.slice(2);
if (command) {
  const child = spawn(command, args, { stdio: 'inherit', env: { ...process.env, IPSEITY_TEST_OIDC_PROVIDER: url } });
  const [code] = await once(child, 'exit');
  process.exit(code ?? 1);
}
console.log(url);
