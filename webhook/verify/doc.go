// Package verify is what a receiver of signed webhooks puts in front of its
// handler: it refuses what nobody with a key has signed, hands on the very bytes
// that were signed, and lets each message run once.
//
// Three schemes are known, and a receiver lists those that it accepts: Standard
// Webhooks (StandardWebhooks), X-Webhook-Signature (BodySignature) and QStash
// (QStash). When a request carries several, the strongest that is accepted
// decides alone, in the order QStash, Standard Webhooks, body.
//
// The invariants: nothing runs unless one of the configured keys signed the body
// that the handler reads; no key means no receiver; a QStash signature counts for
// the configured public URL only, whatever a client writes into Host, Forwarded
// or X-Forwarded-*; a refused sender learns nothing but that it was refused; and a
// message is remembered as finished only after the handler said so with a 2xx.
//
// It is a library for anybody's receiver and needs nothing of a running Gantry.
// It knows the words of tasks, webhook/signature and webhook/qstash, and neither
// producer, worker nor control. Rules: docs/behaviour.md §8 and §9,
// docs/receivers.md.
package verify
