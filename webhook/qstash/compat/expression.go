package compat

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	// Both bounds are far above what a person writes, and keep the parser's stack
	// small.
	maxExpressionBytes = 512
	maxExpressionDepth = 32
)

// expression is a parsed Upstash-Retry-Delay: arithmetic over numbers and the
// variable retried, in milliseconds. The zero value is no expression.
type expression struct {
	source string
	value  func(retried float64) float64
}

// milliseconds evaluates e for the number of retries made before. ok is false
// when there is no expression or its result is no number.
func (e expression) milliseconds(retried int) (ms float64, ok bool) {
	if e.value == nil {
		return 0, false
	}
	ms = e.value(float64(retried))
	return ms, !math.IsNaN(ms)
}

var (
	errExpressionLong = fmt.Errorf("expression is longer than %d bytes", maxExpressionBytes)
	errExpressionDeep = fmt.Errorf("expression is nested deeper than %d levels", maxExpressionDepth)
)

// function is a function of the expression language. most is the greatest number
// of arguments, 0 for any number.
type function struct {
	least, most int
	call        func(args []float64) float64
}

func unary(f func(float64) float64) function {
	return function{1, 1, func(args []float64) float64 { return f(args[0]) }}
}

func folded(f func(a, b float64) float64) function {
	return function{1, 0, func(args []float64) float64 {
		result := args[0]
		for _, arg := range args[1:] {
			result = f(result, arg)
		}
		return result
	}}
}

var functions = map[string]function{
	"pow":  {2, 2, func(args []float64) float64 { return math.Pow(args[0], args[1]) }},
	"sqrt": unary(math.Sqrt), "abs": unary(math.Abs), "exp": unary(math.Exp),
	"floor": unary(math.Floor), "ceil": unary(math.Ceil), "round": unary(math.Round),
	"min": folded(math.Min), "max": folded(math.Max),
}

// parseExpression reads an expression; it evaluates nothing.
func parseExpression(source string) (expression, error) {
	if len(source) > maxExpressionBytes {
		return expression{}, errExpressionLong
	}
	p := &expressionParser{rest: source}
	value, err := p.sum()
	if err != nil {
		return expression{}, err
	}
	if p.next() != 0 {
		return expression{}, fmt.Errorf("unexpected %q in expression", p.rest)
	}
	return expression{source: source, value: value}, nil
}

// expressionParser descends through sum, product, sign and operand; each method
// takes what it understands off the front of rest.
type expressionParser struct {
	rest  string
	depth int
}

type operand = func(retried float64) float64

// next skips spaces and returns the next byte, 0 at the end.
func (p *expressionParser) next() byte {
	p.rest = strings.TrimLeft(p.rest, " \t")
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

// take removes the next byte if it is c.
func (p *expressionParser) take(c byte) bool {
	if p.next() != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *expressionParser) sum() (operand, error) {
	left, err := p.product()
	for err == nil {
		var right operand
		a := left
		switch {
		case p.take('+'):
			right, err = p.product()
			left = func(n float64) float64 { return a(n) + right(n) }
		case p.take('-'):
			right, err = p.product()
			left = func(n float64) float64 { return a(n) - right(n) }
		default:
			return left, nil
		}
	}
	return nil, err
}

func (p *expressionParser) product() (operand, error) {
	left, err := p.sign()
	for err == nil {
		var right operand
		a := left
		switch {
		case p.take('*'):
			right, err = p.sign()
			left = func(n float64) float64 { return a(n) * right(n) }
		case p.take('/'):
			right, err = p.sign()
			left = func(n float64) float64 { return a(n) / right(n) }
		default:
			return left, nil
		}
	}
	return nil, err
}

func (p *expressionParser) sign() (operand, error) {
	negative := false
	for {
		switch {
		case p.take('-'):
			negative = !negative
		case p.take('+'):
		default:
			value, err := p.operand()
			if err != nil || !negative {
				return value, err
			}
			return func(n float64) float64 { return -value(n) }, nil
		}
	}
}

func (p *expressionParser) operand() (operand, error) {
	switch c := p.next(); {
	case c == 0:
		return nil, errors.New("expression ends too early")
	case c == '(':
		p.rest = p.rest[1:]
		values, err := p.nested(1, 1)
		if err != nil {
			return nil, err
		}
		return values[0], nil
	case c == '.' || isDigit(c):
		return p.number()
	case isLetter(c):
		return p.name()
	}
	return nil, fmt.Errorf("unexpected %q in expression", p.rest)
}

// nested reads a list of values up to its closing parenthesis; most 0 means any
// number.
func (p *expressionParser) nested(least, most int) ([]operand, error) {
	if p.depth++; p.depth > maxExpressionDepth {
		return nil, errExpressionDeep
	}
	defer func() { p.depth-- }()
	var values []operand
	for {
		value, err := p.sum()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		if p.take(')') {
			break
		}
		if !p.take(',') {
			return nil, errors.New("a parenthesis in the expression is not closed")
		}
	}
	if len(values) < least || most > 0 && len(values) > most {
		return nil, fmt.Errorf("wrong number of values before %q in expression", p.rest)
	}
	return values, nil
}

func (p *expressionParser) number() (operand, error) {
	end := 0
	for end < len(p.rest) && (p.rest[end] == '.' || isDigit(p.rest[end])) {
		end++
	}
	value, err := strconv.ParseFloat(p.rest[:end], 64)
	if err != nil {
		return nil, fmt.Errorf("%q in expression is no number", p.rest[:end])
	}
	p.rest = p.rest[end:]
	return func(float64) float64 { return value }, nil
}

func (p *expressionParser) name() (operand, error) {
	end := 0
	for end < len(p.rest) && (isLetter(p.rest[end]) || isDigit(p.rest[end])) {
		end++
	}
	name := p.rest[:end]
	p.rest = p.rest[end:]
	if name == "retried" {
		return func(n float64) float64 { return n }, nil
	}
	called, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("unknown name %q in expression", name)
	}
	if !p.take('(') {
		return nil, fmt.Errorf("%s in expression needs its values in parentheses", name)
	}
	values, err := p.nested(called.least, called.most)
	if err != nil {
		return nil, err
	}
	return func(n float64) float64 {
		args := make([]float64, len(values))
		for i, value := range values {
			args[i] = value(n)
		}
		return called.call(args)
	}, nil
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
