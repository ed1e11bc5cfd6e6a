package control

import (
	"context"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// Exchange carries questions to workers and verdicts back. redisverdict.Store is
// one. Every call may be repeated after a lost reply. What fails because Redis
// does not answer is an ErrUnavailable.
type Exchange interface {
	Register
	Inboxes
	Claims
}

// Register keeps one verdict per question: the first that is written stands, and
// everybody reads it.
type Register interface {
	// Name places a question. It talks to nobody.
	Name(operationID, id string) Name
	// Post hands a question over, or joins it when it is there with the same
	// digest. It fails with *ReusedError when it is there with another one.
	Post(ctx context.Context, p *Posting) (Standing, error)
	// Look reads how a question stands, and lets inbox hear of its verdict unless
	// inbox is "". It fails with ErrNotFound when the question is not known.
	Look(ctx context.Context, n Name, inbox string) (Standing, error)
	// Settle writes a verdict unless there is one, and returns the one that stands.
	// It fails with ErrNotFound when the question is not known, and with *ReusedError
	// when its id stands for another content.
	Settle(ctx context.Context, s *Settlement) (Settled, error)
}

// Inboxes tell a process which of its questions have a verdict.
type Inboxes interface {
	// Shards returns the number of shards; each has its own inboxes.
	Shards() int
	// Hear blocks until the inbox gets notices on a shard, and returns them, or none
	// after a few seconds. One call per process and shard serves all its callers. It
	// must not be cancelled, because a notice may be lost with it.
	Hear(ctx context.Context, shard int, inbox string) ([]Notice, error)
	// Rouse makes a call of Hear return.
	Rouse(ctx context.Context, shard int, inbox string) error
}

// Claims hand questions to workers.
type Claims interface {
	// Claim takes up to limit questions of a shard under a lease. With a wait it
	// blocks until there is one, or for so long. None is no error. It must not be
	// cancelled, because a claim may be lost with it until its lease ends.
	Claim(ctx context.Context, shard, limit int, wait time.Duration) ([]Claim, error)
	// Renew renews the leases of held questions, all of one shard, and returns those
	// that nobody waits for here any more: settled meanwhile, over, or in other hands.
	Renew(ctx context.Context, shard int, held []Held) (ended []Held, err error)
	// Release gives held questions of one shard back, so that another worker takes
	// them at once.
	Release(ctx context.Context, shard int, held []Held) error
	// Sweep offers the questions of one shard again whose lease has ended.
	Sweep(ctx context.Context, shard int) (Swept, error)
}

// Name places a question in an exchange. It is comparable.
type Name struct {
	// Shard is the index of the shard that keeps the question.
	Shard int
	// Operation is tasks.OperationHash of the operation, ID the id of the question.
	Operation, ID string
}

// Posting is a question on its way to a worker.
type Posting struct {
	Name     Name
	Question *tasks.Question
	// Digest fingerprints what the caller asked. Equal ones under one id are the same
	// question.
	Digest string
	// Fallback is the verdict when nobody answers by the deadline.
	Fallback *tasks.Verdict
	// Inbox hears of the verdict; "" tells nobody.
	Inbox string
}

// Standing is how a question stands.
type Standing struct {
	// Verdict is nil while there is none. It is never nil after the deadline.
	Verdict *tasks.Verdict
	// Digest is that of the posting; Post, which compares it, leaves it out.
	Digest string
	// Type is the phase of the question; Post leaves it out while there is no verdict.
	Type tasks.HookType
	// Left is what remains until the deadline; 0 when there is a verdict.
	Left time.Duration
}

// Settlement is somebody's verdict on a question.
type Settlement struct {
	Name Name
	// Verdict is what to write unless there is one; nil stands for the fallback of
	// the posting.
	Verdict *tasks.Verdict
	// Writer tells writers apart: the same one may write again after a lost reply.
	Writer string
	// Source is who writes. What a worker writes after the deadline is refused, and
	// the fallback stands.
	Source tasks.VerdictSource
	// Digest is that of the posting that the verdict is about. With it an asker's
	// verdict stands also when the question has not arrived, or not yet; "" is about
	// whatever stands, and refuses a question that is not known.
	Digest string
}

// Fate is what became of a settlement.
type Fate string

// The fates. The zero value is none.
const (
	// FateWon: the verdict stands.
	FateWon Fate = "won"
	// FateStood: another verdict was there before.
	FateStood Fate = "stood"
	// FateLate: it came after the deadline, and the fallback stands.
	FateLate Fate = "late"
)

// Settled is the answer to a settlement.
type Settled struct {
	// Verdict is the one that stands, whoever wrote it.
	Verdict tasks.Verdict
	Fate    Fate
}

// Notice tells that a question has a verdict.
type Notice struct {
	Name Name
	// Digest is that of the posting.
	Digest string
	// Verdict is the one that stands.
	Verdict tasks.Verdict
}

// Held is a question in the hands of a worker.
type Held struct {
	Name Name
	// Token tells this claim from others of the same question.
	Token string
}

// Claim is a question that a worker took.
type Claim struct {
	Held
	Question tasks.Question
	// Digest is that of the posting.
	Digest string
	// Fault says why what stands in Redis is no question; nil otherwise. Such a one is
	// settled by its fallback.
	Fault error
	// Left is what remained until the deadline when it was taken.
	Left time.Duration
	// Attempt counts the claims of the question, from 1.
	Attempt int
}

// Swept is what a sweep did.
type Swept struct {
	// Again counts questions that are offered again, GivenUp those that were taken too
	// often and got their fallback.
	Again, GivenUp int
	// Waiting is the number of questions that wait for a worker.
	Waiting int
}
