// Prints your IP address, and your country if the key's scope includes it.
// [docs]
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	url := os.Getenv("IPSEITY_URL")
	if url == "" {
		url = "https://ip.example"
	}
	request, err := http.NewRequest(http.MethodGet, url+"/api/v1/ip", nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("IPSEITY_KEY"))

	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()

	// Fields that are null or outside the key's scope stay empty.
	var body struct {
		IP, IPv6, Country          string
		Error, Message, Enterprise string
	}
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		log.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		log.Printf("%s: %s", body.Error, body.Message)
		// The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
		if body.Enterprise != "" {
			log.Printf("Try again in %s s.", response.Header.Get("Retry-After"))
		}
		os.Exit(1)
	}
	// A request uses either IPv4 or IPv6, so one of the two is empty.
	fmt.Println(strings.TrimSpace(body.IP + body.IPv6 + " " + body.Country))
}
// [/docs]
