// The mails that the service has sent, as the mail server's files tell them.

import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

import { eventually } from './wait.mjs';

const MAIL_MAX_MS = 20_000;

export class Mailbox {
  #taken = new Set();

  constructor(folder) {
    this.folder = folder;
  }

  // The oldest mail to an address that was not taken before, and whose subject or text holds `part`.
  async take(address, part = '') {
    const isWanted = (mail) => mail.to.includes(address) && `${mail.subject}\n${mail.text}`.includes(part);
    const found = await eventually(
      `a mail to ${address}${part && ` about “${part}”`}`,
      () => this.#untaken().find(({ mail }) => isWanted(mail)),
      MAIL_MAX_MS,
    );
    this.#taken.add(found.name);
    return found.mail;
  }

  #untaken() {
    const names = readdirSync(this.folder).filter((name) => name.endsWith('.json') && !this.#taken.has(name));
    return names.sort().map((name) => ({ name, mail: JSON.parse(readFileSync(path.join(this.folder, name), 'utf8')) }));
  }
}

// The one link of a mail to a page of a single button.
export function linkOf(mail) {
  const links = mail.text.match(/https:\/\/\S+\/link\/[^\s>"]+/g) ?? [];
  if (new Set(links).size !== 1) throw new Error(`one link expected in “${mail.subject}”, not ${links.length}`);
  return links[0];
}
