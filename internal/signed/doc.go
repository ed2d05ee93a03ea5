// Package signed makes and checks the three things that Cellquota trusts because
// of a key and not because of who sent them: permits, receipts and the signatures
// of payment callbacks. All are HMAC-SHA256 of the standard library.
//
//	permit, receipt   v1.KID.b64url(payload).b64url(mac)
//	mac               HMAC(key, use "." everything before the last dot)
//	Payment-Signature t=UNIX_SECONDS,kid=KID,v1=hex(HMAC(key, t "." body))
//
// # Promise
//
//   - Verify answers ErrInvalid and nothing else: a forged token, a cut one, one of
//     another use, of an unknown key id or of another version cannot be told apart
//     (K55). Only a token that was signed under a key of the set is read at all.
//   - There is exactly one token text for a payload and a key: nothing can be added,
//     re-encoded or re-ordered and still verify.
//   - What Verify returns obeys the grammars of package ids.
//   - A token of one use never passes for another, even where two uses were given
//     the same key bytes.
//   - Time is the caller's: Permit says when it ends, and he who uses it compares.
//     Burning the nonce is the cell's.
//   - No key byte and no token is part of any error or printed form here.
//
// # Keys
//
// A key is a file keys_dir/USE/KID of at least 16 raw bytes; one trailing line
// break is cut. Which key signs and which are REVOKED is state in etcd; a Ring goes
// by what the caller heard of it: ask it for the Signer, verify with its Keys.
//
// # Neighbours
//
// The edge signs permits and verifies them and payment signatures; the cell
// verifies permits, and signs and verifies receipts; the demo's provider signs
// callbacks. signed imports ids and nothing else of ours.
package signed
