package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"
	"github.com/gorhill/cronexpr"
	"github.com/robfig/cron/v3"
)

type next func(time.Time) (time.Time, error)

func main() {
	expression := os.Args[1]
	zone, _ := time.LoadLocation(os.Args[2])
	start, _ := time.Parse(time.RFC3339, os.Args[3])
	count, _ := strconv.Atoi(os.Args[4])
	tell := func(library string, find next) {
		last, told := start.In(zone), []string{}
		for range count {
			moment, refused := find(last)
			if refused != nil {
				told = []string{"refused"}
				break
			}
			told, last = append(told, moment.UTC().Format("2006-01-02T15:04Z")), moment
		}
		fmt.Printf("%s: %s\n", library, strings.Join(told, " "))
	}
	tell("Go robfig/cron", func(last time.Time) (time.Time, error) {
		read, refused := cron.ParseStandard(expression)
		if refused != nil {
			return last, refused
		}
		return read.Next(last), nil
	})
	tell("Go gorhill/cronexpr", func(last time.Time) (time.Time, error) {
		read, refused := cronexpr.Parse(expression)
		if refused != nil {
			return last, refused
		}
		return read.Next(last), nil
	})
	tell("Go adhocore/gronx", func(last time.Time) (time.Time, error) {
		return gronx.NextTickAfter(expression, last, false)
	})
}
